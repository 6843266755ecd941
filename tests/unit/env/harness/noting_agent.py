"""A harness that keeps notes, of nothing but the standard library: `noting_agent.py [--continue] PROMPT` asks the model until it says nothing more to
do, does as it is told, and has its conversation in its home, so that it can go on with it."""

import json
import os
import sys
import urllib.request

base, key, prompt = os.environ["MODEL_URL"], os.environ["MODEL_KEY"], sys.argv[-1]
notes = os.path.join(os.environ["HOME"], "notes.json")
messages = []
if "--continue" in sys.argv:
    with open(notes) as file:
        messages = json.load(file)
messages.append({"role": "user", "content": prompt})
while True:
    with open(notes, "w") as file:
        json.dump(messages, file)
    body = json.dumps({"model": "policy", "messages": messages}).encode()
    request = urllib.request.Request(
        f"{base}/chat/completions", body, {"authorization": f"Bearer {key}", "content-type": "application/json"}
    )
    reply = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    messages.append(reply)
    if not reply["content"].startswith("do "):
        break
    messages.append({"role": "user", "content": str(os.system(reply["content"].removeprefix("do ")))})
