"""A page in headless Chromium, as tests in Python look at it: driven over a pipe by the DevTools protocol."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile

PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome", "chromium-browser")


def _away(fd):
    """The same end of a pipe behind the numbers that the browser expects it at."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return moved


class Browser:
    """One browser with one tab. Its methods return when what they ask for is done."""

    def __init__(self):
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        assert program, f"none of {', '.join(PROGRAMS)} is here: `make deps` installs the first"
        self.home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        (theirs_read, ours_write), (ours_read, theirs_write) = (map(_away, os.pipe()) for _ in range(2))

        def place_ends():
            os.dup2(theirs_read, 3)
            os.dup2(theirs_write, 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             f"--user-data-dir={self.home.name}"],
            pass_fds=(3, 4), preexec_fn=place_ends, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=dict(os.environ, HOME=self.home.name))
        os.close(theirs_read)
        os.close(theirs_write)
        self.out, self.replies = os.fdopen(ours_write, "wb", 0), os.fdopen(ours_read, "rb")
        self.number, self.session, self.rest, self.events = 0, None, b"", []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.out.close()
        self.replies.close()
        self.home.cleanup()

    def _message(self):
        while b"\0" not in self.rest:
            more = os.read(self.replies.fileno(), 1 << 20)
            assert more, "the browser has ended"
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def ask(self, method, **parameters):
        """The result of a method of the protocol."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        self.out.write(json.dumps(request | ({"sessionId": self.session} if self.session else {})).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def load(self, path, scripts=True, width=1000, scheme="light", media=""):
        """Shows the file. It must load nothing else, throw nothing, open nothing and violate no policy."""
        self.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.show(width, scheme, media)
        self.events = []
        self.ask("Page.navigate", url=f"file://{os.path.abspath(path)}")
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())
        self.run("0")  # what it has said until now
        seen = [event["method"] for event in self.events]
        for method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Page.javascriptDialogOpening"):
            assert method not in seen, [event for event in self.events if event["method"] == method]
        assert seen.count("Network.requestWillBeSent") == 1, seen

    def show(self, width, scheme="light", media=""):
        """The loaded page at another width, in another color scheme, or as "print" shows it."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def run(self, expression):
        """The value of an expression in JavaScript; of a promise, once it is kept."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def pdf(self):
        """The page as it is printed."""
        return base64.b64decode(self.ask("Page.printToPDF")["data"])
