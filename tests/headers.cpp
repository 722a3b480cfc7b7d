// Nothing: the target that this file belongs to holds the precompiled header of the tests.
