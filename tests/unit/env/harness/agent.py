"""A harness of nothing but the standard library: asks the model until it says nothing more to do, and does as it is told."""

import json
import os
import sys
import urllib.request

base, key, prompt = os.environ["MODEL_URL"], os.environ["MODEL_KEY"], sys.argv[1]
messages = [{"role": "user", "content": prompt}]
while True:
    body = json.dumps({"model": "policy", "messages": messages}).encode()
    request = urllib.request.Request(
        f"{base}/chat/completions", body, {"authorization": f"Bearer {key}", "content-type": "application/json"}
    )
    reply = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    messages.append(reply)
    print("said:", reply["content"], flush=True)
    if not reply["content"].startswith("do "):
        break
    messages.append({"role": "user", "content": str(os.system(reply["content"].removeprefix("do ")))})
