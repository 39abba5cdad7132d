"""Serve predictions for handwritten digits over HTTP: the inference job of the demo.

POST /predict with a JSON list of 64 pixels (0..16) answers {"digit": d}: the class whose mean image in the training
data is nearest. Runs until it is told to stop.
"""

import json
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from numpy.typing import NDArray

import libs.sdk as farside

PIXELS = 64
MAX_BODY_BYTES = 64 * 1024


def mean_images(images: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """One mean image a class: shape (10, 64)."""
    return np.stack([images[labels == digit].mean(axis=0) for digit in range(10)])


def nearest(means: NDArray[np.float64], pixels: list[float]) -> int:
    """The digit whose mean image is nearest to `pixels`."""
    return int(((means - np.asarray(pixels, dtype=np.float64)) ** 2).sum(axis=1).argmin())


def handler(means: NDArray[np.float64]) -> type[BaseHTTPRequestHandler]:
    """A request handler that answers from `means`."""

    class Predict(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(min(int(self.headers.get("content-length", "0")), MAX_BODY_BYTES))
            try:
                pixels = [float(value) for value in json.loads(body)]
            except (ValueError, TypeError):
                pixels = []
            if self.path != "/predict" or len(pixels) != PIXELS:
                self.answer(400, {"error": f"POST /predict takes a JSON list of {PIXELS} pixels between 0 and 16"})
                return
            self.answer(200, {"digit": nearest(means, pixels)})

        def answer(self, status: int, body: dict[str, int | str]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Predict


def main() -> None:
    """Read the dataset, listen, tell Farside where, serve until SIGTERM."""
    with farside.attach() as job:
        folder = job.dataset()
        images: NDArray[np.float64] = np.load(folder / "train_images.npy")
        labels: NDArray[np.int64] = np.load(folder / "train_labels.npy")
        means = mean_images(images, labels)
        # Where the members meet is an address of this node, with a port kept free for the job.
        host, _, port = (job.rendezvous or "127.0.0.1:0").rpartition(":")
        server = ThreadingHTTPServer((host, int(port)), handler(means))
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://{host}:{server.server_port}/predict"
        print(f"serving at {endpoint}", flush=True)
        job.ready(endpoint)
        stop.wait()
        server.shutdown()


if __name__ == "__main__":
    main()
