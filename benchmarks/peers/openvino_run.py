"""One measurement of OpenVINO GenAI, in a process and an environment of its own. Prints JSON: tokens a second.

    python openvino_run.py FOLDER PROMPT_TOKENS GEN_TOKENS BATCH THREADS

Its continuous batching pipeline is the faster of its two at one request and the only one for several. Prompts are
random tokens, new ones each time, and its prefix cache is off. A prompt's time is that of answers of one token; an
answer's is what longer ones take more.
"""

import json
import random
import sys
import time

import numpy as np
import openvino as ov
import openvino_genai as genai


def main() -> None:
    folder = sys.argv[1]
    prompt_tokens, gen_tokens, batch, threads = map(int, sys.argv[2:])
    schedule = genai.SchedulerConfig()
    schedule.enable_prefix_caching = False
    schedule.cache_size = 1  # GB of keys and values
    pipeline = genai.ContinuousBatchingPipeline(folder, schedule, "CPU", {"INFERENCE_NUM_THREADS": threads})
    vocabulary = len(pipeline.get_tokenizer().get_vocab())

    def seconds(answer: int) -> float:
        length = max(1, prompt_tokens)
        ids = [[random.randrange(100, vocabulary) for _ in range(length)] for _ in range(batch)]
        inputs = [ov.Tensor(np.array([one], dtype=np.int64)) for one in ids]
        config = genai.GenerationConfig(max_new_tokens=answer, ignore_eos=True, do_sample=False)
        started = time.perf_counter()
        answers = pipeline.generate(inputs, [config] * batch)
        taken = time.perf_counter() - started
        lengths = [len(one.m_generation_ids[0]) for one in answers]
        if lengths != [answer] * batch:
            raise SystemExit(f"answers of {lengths} tokens, not {answer}")
        return taken

    seconds(2)  # compiles what is compiled at the first use
    first = min(seconds(1) for _ in range(3)) if gen_tokens else seconds(1)
    if gen_tokens:
        rate = batch * gen_tokens / (seconds(gen_tokens + 1) - first)
    else:
        rate = batch * prompt_tokens / first
    sys.stdout.write(json.dumps({"tok_s": rate}) + "\n")


if __name__ == "__main__":
    main()
