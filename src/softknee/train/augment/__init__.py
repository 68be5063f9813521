"""Augmentation of images that are on the device already, drawn from the keys of the replicas."""

from .augment import Augment

__all__ = ["Augment"]
