"""Writes photo.png: of noise, so that it stays large."""

import random

from PIL import Image

noise = random.Random(1).randbytes(1500 * 1500 * 3)
Image.frombytes("RGB", (1500, 1500), noise).save("photo.png")
