#pragma once

// Names that <windows.h>, <complex.h>, <sys/sysmacros.h>, <termios.h> and X11 define as macros. Any use of one
// in a header of ours expands to something that no compiler takes.
#define BUZZ_HOSTILE "a macro of a platform header"

#define min(a, b) BUZZ_HOSTILE
#define max(a, b) BUZZ_HOSTILE

#define I BUZZ_HOSTILE
#define B0 BUZZ_HOSTILE

#define ERROR BUZZ_HOSTILE
#define IN BUZZ_HOSTILE
#define OUT BUZZ_HOSTILE
#define OPTIONAL BUZZ_HOSTILE
#define TRUE BUZZ_HOSTILE
#define FALSE BUZZ_HOSTILE
#define DELETE BUZZ_HOSTILE
#define far BUZZ_HOSTILE
#define near BUZZ_HOSTILE
#define small BUZZ_HOSTILE
#define interface BUZZ_HOSTILE

#define Bool BUZZ_HOSTILE
#define None BUZZ_HOSTILE
#define Status BUZZ_HOSTILE
#define Success BUZZ_HOSTILE
#define Always BUZZ_HOSTILE

#define major BUZZ_HOSTILE
#define minor BUZZ_HOSTILE
