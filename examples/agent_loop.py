"""An agent that asks a model what to do next, and remembers across runs of this program.

Any callable from text to text can be the model. This one is a few rules, so that the example needs no key and no
network: put your client's call in its place.

    python examples/agent_loop.py team.db && python examples/agent_loop.py team.db
"""

from __future__ import annotations

import re
import sys

import commonplace


def model(prompt: str) -> str:
    """What a language model would answer: a line that says which tool to use, or the answer."""
    known = re.search(r"key=unit\.price value=(\d+)", prompt)
    order = re.search(r"(\d+) units", prompt)
    if known is None:
        return "LOOK UP unit.price"
    return f"ANSWER The order costs {int(known[1]) * int(order[1] if order else 1)} euros."


def price_list(name: str) -> int:
    print(f"   (the price list is read for {name})")
    return 12


with commonplace.open(sys.argv[1] if sys.argv[1:] else "team.db") as book:
    task = "What does an order of 30 units cost?"
    with book.run(initial={"task": task}) as run, run.agent("clerk") as me:
        for _ in range(5):
            # The task, what was said in this run and what the team knows, in one budget, with a receipt.
            prompt = me.prompt(task, max_chars=4000)
            answer = model(str(prompt))
            print(f"model: {answer}")
            if answer.startswith("LOOK UP "):
                name = answer.removeprefix("LOOK UP ")
                print(f"   {me.remember(key=name, value=price_list(name), shared=True)}")
                continue
            me.write({"answer": answer.removeprefix("ANSWER "), "confidence": 0.9})
            break
    print(run.state()["clerk"]["answer"])
