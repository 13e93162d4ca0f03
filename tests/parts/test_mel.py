"""Bands of frequencies against librosa's, and Whisper's own."""

import librosa
import numpy as np
import pytest
import torch
from transformers import WhisperFeatureExtractor
from transformers.audio_utils import spectrogram, window_function

from regard.parts.mel import Mel, filters


def sound(seconds=1.0, rate=16000, seed=0):
    """A rising tone with noise."""
    t = np.arange(int(seconds * rate)) / rate
    noise = np.random.default_rng(seed).standard_normal(len(t))
    return (0.4 * np.sin(2 * np.pi * (200 + 900 * t) * t) + 0.02 * noise).astype(np.float32)


SOME = [(16000, 400, 80), (8000, 256, 40), (22050, 2048, 128)]


@pytest.mark.parametrize(("rate", "size", "bands"), SOME)
def test_the_filters_are_librosas(rate, size, bands):
    wanted = librosa.filters.mel(sr=rate, n_fft=size, n_mels=bands)
    np.testing.assert_allclose(filters(rate, size, bands).numpy(), wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("rate", "size", "hop", "bands"), [(16000, 400, 160, 80), (8000, 256, 80, 40)]
)
def test_the_bands_are_those_of_transformers(rate, size, hop, bands):
    x = sound(1.3, rate)
    power = spectrogram(
        x, window_function(size, "hann"), size, hop, size, power=2.0, mel_floor=0.0,
        mel_filters=librosa.filters.mel(sr=rate, n_fft=size, n_mels=bands).T,
    )  # fmt: skip
    found = Mel(rate, bands, size, hop)(torch.from_numpy(x)[None])[0]
    wanted = np.log(np.maximum(power, 1e-7)).T
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found.numpy(), wanted, atol=2e-3)


def test_a_shorter_window_stands_in_the_middle_of_its_piece():
    x = torch.from_numpy(sound(0.2))
    wanted = torch.stft(
        x, 512, 160, 400, torch.hann_window(400), pad_mode="reflect", return_complex=True
    )
    power = filters(16000, 512, 80) @ wanted.abs().square()
    found = Mel(16000, 80, 512, 160, window=400)(x[None])[0]
    torch.testing.assert_close(found, power.clamp_min(1e-7).log().T, atol=1e-4, rtol=1e-4)


def test_whispers_are_whispers():
    x = sound(2.0)
    extract = WhisperFeatureExtractor(feature_size=80)
    wanted = extract(x, sampling_rate=16000, return_tensors="np").input_features[0]  # (80, 3000)
    whole = np.zeros(480_000, np.float32)
    whole[: len(x)] = x
    found = Mel(16000, 80, 400, 160, "whisper")(torch.from_numpy(whole)[None])[0]
    assert found.shape == (3000, 80)
    np.testing.assert_allclose(found.numpy().T, wanted, atol=1e-4)


def test_short_and_silent_sounds_have_bands_too():
    mel = Mel(16000, 80, 400, 160)
    for count in (1, 150, 400):
        found = mel(torch.zeros(1, count))
        assert found.shape == (1, count // 160 + 1, 80) and torch.isfinite(found).all()


def test_one_sound_is_the_same_beside_others():
    mel, both = (
        Mel(16000, 80, 400, 160),
        torch.stack([torch.from_numpy(sound(seed=s)) for s in (0, 1)]),
    )
    torch.testing.assert_close(mel(both)[1:], mel(both[1:]))
