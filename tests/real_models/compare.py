"""buzz-generate beside llama.cpp: tokens, logits and greedy continuations of ten texts, and speed. See check.py."""
import ctypes
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import llama_cpp
import numpy

# In several scripts, with numbers, spaces, code and emoji; the first three are gone on from.
TEXTS = [
    "The hound of the Baskervilles was first seen on the moor in the year 1742, when",
    "To make bread you need flour, water, salt and yeast. First,",
    "Der Wald ist im Herbst am sch\u00f6nsten, weil die Bl\u00e4tter",
    "\u041c\u043e\u0441\u043a\u0432\u0430 \u2014 \u0441\u0442\u043e\u043b\u0438\u0446\u0430 \u0420\u043e\u0441\u0441\u0438\u0438; 12 \u0438\u044e\u043d\u044f 1990 \u0433\u043e\u0434\u0430.",
    "\u5317\u4eac\u662f\u4e2d\u56fd\u7684\u9996\u90fd\uff0c\u4eba\u53e3\uff12\uff11\uff10\uff10\u4e07\u3002\u3000\u6771\u4eac\u306f\u65e5\u672c\u306e\u9996\u90fd\u3067\u3059\u3002",
    "\u0627\u0644\u0642\u0627\u0647\u0631\u0629 \u0639\u0627\u0635\u0645\u0629 \u0645\u0635\u0631 \u0661\u0662\u0663\u061b \u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd!",
    "\u0926\u093f\u0932\u094d\u0932\u0940 \u092d\u093e\u0930\u0924 \u0915\u0940 \u0930\u093e\u091c\u0927\u093e\u0928\u0940 \u0939\u0948\u0964 \u0e01\u0e23\u0e38\u0e07\u0e40\u0e17\u0e1e \ud55c\uad6d\uc5b4 \ud14c\uc2a4\ud2b8",
    "\U0001f41d\U0001f41d bees! \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \u2764\ufe0f\U0001f1eb\U0001f1f7 caf\u00e9 na\u0131ve cafe\u0301 \U0001d538\u00b2\u00bd \u2167",
    "int main() {\n\tfor (int i = 0; i < 10; ++i)   printf(\"%d\\n\", i);\n}\n\n\n// don't we'll I'D 'tis  ...  <td>x</td>",
    "  leading,  double  and trailing spaces \t\ttabs\r\n\r\n 3.14159 1,000,000 x2y <s> <bos> <|im_start|>user\n  ",
]
CHAT = "<|im_start|>user\nHi<|im_end|>\n<start_of_turn>model\n"
GREEDY = 100
# With its weights as F32, llama.cpp computes what we do: seen, logits 0.00007 apart at most for SmolLM2, and 0.03 for
# Gemma, whose GELU it takes from a table of halves. With the file as it is, it rounds activations to 8 bits before each
# product, we do not: seen, logits 0.33 apart in the mean of a text, a divergence of 0.010, and greedy tokens that differ
# first where the two likeliest are 0.24 apart.
EXACT, EXACT_TIE = 0.1, 0.05
MEAN_LOGIT, KL, TIE = 0.5, 0.02, 0.3
QUIET = llama_cpp.llama_log_callback(lambda *_: None)


class Llama:
    def __init__(self, path):
        llama_cpp.llama_log_set(QUIET, ctypes.c_void_p(0))
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.size = llama_cpp.llama_vocab_n_tokens(self.vocab)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = 2048
        params.n_threads = params.n_threads_batch = 2
        params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = llama_cpp.llama_init_from_model(self.model, params)

    def tokens(self, text, special=False):
        data = text.encode()
        room = (llama_cpp.llama_token * (len(data) + 8))()
        return list(room[:llama_cpp.llama_tokenize(self.vocab, data, len(data), room, len(room), True, special)])

    def read(self, ids, first=0, logits_from=None):
        """Reads tokens at positions from `first` on; the logits of those from `logits_from` on."""
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        wanted = range(len(ids)) if logits_from is None else range(logits_from, len(ids))
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, first + i, 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = i in wanted
        if llama_cpp.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode")
        rows = [numpy.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, i), (self.size,)).copy()
                for i in wanted]
        llama_cpp.llama_batch_free(batch)
        return numpy.array(rows, dtype=numpy.float64)

    def clear(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def speed(self, ids):
        """Tokens a second of a prompt, and of tokens one by one after it."""
        self.clear()
        prompt, rest = ids[:len(ids) - 64], ids[len(ids) - 64:]
        begin = time.time()
        self.read(prompt, logits_from=len(prompt) - 1)
        middle = time.time()
        for i, token in enumerate(rest):
            self.read([token], len(prompt) + i)
        return len(prompt) / (middle - begin), len(rest) / (time.time() - middle)


def generate(program, model, text, tokens, *more):
    """What buzz-generate says, and the logits after the text and after each token that it added."""
    with tempfile.TemporaryDirectory() as folder:
        prompt, logits = Path(folder, "prompt"), Path(folder, "logits")
        prompt.write_bytes(text.encode())
        command = [program, model, "--file", str(prompt), "--tokens", str(tokens), "--policy", "full", "--json",
                   "--logits", str(logits), *more]
        out = subprocess.run(command, check=True, capture_output=True).stdout
        said = json.loads(out)
        rows = numpy.fromfile(logits, dtype="<f4").astype(numpy.float64)
        return said, rows.reshape(1 + len(said["greedy_ids"]), -1)


def kl(p, q):
    """Of the softmax of each row of p from that of q."""
    p, q = (x - x.max(axis=1, keepdims=True) for x in (p, q))
    p, q = (x - numpy.log(numpy.exp(x).sum(axis=1, keepdims=True)) for x in (p, q))
    return (numpy.exp(p) * (p - q)).sum(axis=1)


def widen(path, folder):
    """The same model with its weights as F32."""
    target = str(Path(folder, "f32.gguf"))
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = llama_cpp.LLAMA_FTYPE_ALL_F32, True, 2
    if llama_cpp.llama_model_quantize(path.encode(), target.encode(), ctypes.byref(params)) != 0:
        raise RuntimeError("llama_model_quantize")
    return target


def against(llama, ids, greedy, ours, tie):
    """How far our logits are from a model's: largest and mean difference, divergence; the greedy tokens in words, and
    whether they are the same until two are nearly as likely."""
    llama.clear()
    theirs = llama.read(ids + greedy, logits_from=len(ids) - 1)
    other = [k for k in range(len(greedy)) if theirs[k].argmax() != greedy[k]]
    words, good = f"; the same {len(greedy)} greedy tokens" if greedy else "", True
    if other:
        k, token = other[0], theirs[other[0]].argmax()
        gaps = ours[k].max() - ours[k][token], theirs[k].max() - theirs[k][greedy[k]]
        words = f"; greedy token {k} is another by {gaps[0]:.3f} (llama.cpp: {gaps[1]:.3f})"
        good = max(gaps) <= tie
    return abs(ours - theirs).max(), abs(ours - theirs).mean(), kl(theirs, ours).mean(), words, good


def compare_text(number, wide, llama, program, model):
    text = TEXTS[number]
    said, ours = generate(program, model, text, GREEDY if number < 3 else 0)
    ids, greedy = said["ids"], said["greedy_ids"]
    if ids != llama.tokens(text):
        print(f"  text {number}: tokens WRONG: {ids}, llama.cpp {llama.tokens(text)}")
        return False
    most, _, _, words, good = against(wide, ids, greedy, ours, EXACT_TIE)
    line = f"  text {number}: {len(ids)} tokens equal; as F32, logits differ by {most:.5f} at most{words}"
    good = good and most <= EXACT
    most, mean, far, words, near = against(llama, ids, greedy, ours, TIE)
    line += f"; as it is, by {mean:.3f}, {most:.2f} at most, KL {far:.5f}{words}"
    good = good and near and mean <= MEAN_LOGIT and far <= KL
    print(line + ("" if good else ": WRONG"))
    return good


def main(program, model):
    llama = Llama(model)
    with tempfile.TemporaryDirectory(dir=Path(model).parent) as folder:
        wide = Llama(widen(model, folder))
    print(f"{Path(model).name} beside llama.cpp:")
    good = all([compare_text(number, wide, llama, program, model) for number in range(len(TEXTS))])
    said, _ = generate(program, model, CHAT, 0, "--control-tokens")
    if said["ids"] != llama.tokens(CHAT, special=True):
        print(f"  a chat's tokens: WRONG: {said['ids']}, llama.cpp {llama.tokens(CHAT, special=True)}")
        good = False
    # Speed is printed, not judged: it is the machine's, and this is not the place to measure it well.
    text = " ".join(TEXTS[:3] * 12)
    said, _ = generate(program, model, text, 64, "--unscored", "--chunk", "128", "--threads", "2")
    prompt, decode = llama.speed(said["ids"] + said["greedy_ids"] + [said["ids"][-1]] * (64 - len(said["greedy_ids"])))
    print(f"  tokens/s: prompt {said['prompt_tokens_per_second']:.0f} (llama.cpp {prompt:.0f}), one by one "
          f"{said['tokens_per_second'] or 0:.1f} (llama.cpp {decode:.1f})")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
