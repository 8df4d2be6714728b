"""How far two computations of the same thing are apart."""

import math


class Worst:
    """The largest error, relative to the largest element of its tensor, and where it is."""

    def __init__(self, tolerance):
        self.tolerance = tolerance
        self.error, self.where = 0.0, "nothing"

    def see(self, where, ours, theirs):
        scale = theirs.abs().max().item()
        error = (ours - theirs).abs().max().item() / scale if scale else ours.abs().max().item()
        if not (error <= self.error or math.isnan(self.error)):  # a NaN is the worst
            self.error, self.where = error, where

    def check(self):
        if not self.error <= self.tolerance:
            raise ValueError(f"{self.where}: off by {self.error:.2e}, allowed {self.tolerance:.0e}")
        return f"{self.error:.1e} ({self.where})"
