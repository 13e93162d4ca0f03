"""ICU-Sepsis: policies learned from records, and estimates of them, held against the truth.

    python benchmarks/decisions.py [--seeds 5] [--episodes 10000] [--only learners|estimates]

The dynamics ship with the environment (Choudhary et al. 2024), so a policy of the state has an
exact value by a linear solve; one that remembers is let decide 40,000 times. Records are those
of its expert. A learner sees nothing but them.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import regard
from regard.score.policies import Judged, estimates
from regard.tasks.history import Window, window_of

TERMINAL = (713, 714, 715)  # died, lived, and after


class Sepsis:
    """The process, many histories at a time."""

    def __init__(self) -> None:
        warnings.filterwarnings("ignore")
        import gymnasium
        import icu_sepsis  # noqa: F401

        made = gymnasium.make("Sepsis/ICU-Sepsis-v2").unwrapped
        self.moves, self.gains, self.first = made._tx_mat, made._r_mat, made._d_0 / made._d_0.sum()
        self.expert = made.expert_policy
        self.states, self.actions = self.expert.shape
        self.cumulated = self.moves.cumsum(2)

    def exact(self, policy: np.ndarray) -> float:
        """The value of a policy of the state.  (S, A)"""
        moves = np.einsum("sa,sat->st", policy, self.moves)
        gains = np.einsum("sa,sat,sat->s", policy, self.moves, self.gains)
        moves[:, TERMINAL] = 0
        moves[list(TERMINAL)], gains[list(TERMINAL)] = 0, 0
        values = np.linalg.solve(np.eye(self.states) - moves, gains)
        return float(self.first @ values)

    def run(self, decide, count: int, seed: int, longest: int = 400):
        """`decide` is told all that still go on.  -> lists of states, actions, rewards"""
        rng = np.random.default_rng(seed)
        state = rng.choice(self.states, count, p=self.first)
        told = [([], [], []) for _ in range(count)]
        alive = np.arange(count)
        for _ in range(longest):
            for row, s in zip(alive, state, strict=True):
                told[row][0].append(int(s))
            chances = decide([told[row] for row in alive], state)
            sums = chances.cumsum(1)
            action = (rng.random(len(alive))[:, None] * sums[:, -1:] > sums).sum(1)
            action = action.clip(max=self.actions - 1)
            after = (rng.random(len(alive))[:, None] > self.cumulated[state, action]).sum(1)
            after = after.clip(max=self.states - 1)
            gained = self.gains[state, action, after]
            for row, a, r in zip(alive, action, gained, strict=True):
                told[row][1].append(int(a))
                told[row][2].append(float(r))
            going = ~np.isin(after, TERMINAL)
            alive, state = alive[going], after[going]
            if not len(alive):
                break
        return told

    def record(self, path: Path, count: int, seed: int) -> None:
        told = self.run(lambda _, state: self.expert[state], count, seed)
        with path.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["episode", "step", "state", "action", "reward", "probability"])
            for number, (states, actions, rewards) in enumerate(told):
                for at, (s, a, r) in enumerate(zip(states, actions, rewards, strict=True)):
                    out.writerow([number, at, s, a, f"{r:g}", f"{self.expert[s, a]:.8g}"])


def by_state(run, sepsis: Sepsis) -> np.ndarray:
    """A run's policy at the first step of every state, which is all of it for a table.  (S, A)"""
    task, found = run.task, np.zeros(sepsis.expert.shape)
    places = [int(name) for name in task.coder.actions]
    rows = [task.coder.row([[str(state)]], []) for state in range(sepsis.states)]
    said = task.decider.says(run.model, rows, [np.zeros(0)] * len(rows), 10_000)
    for state, one in enumerate(said):
        found[state, places] = one.policy[0]
    return found


def simulated(run, sepsis: Sepsis, count: int, seed: int) -> tuple[float, float]:
    """The mean return of a run that decides by itself, and its standard error."""
    task = run.task
    places = [int(name) for name in task.coder.actions]
    context = task.settings.context
    words = [task.coder.words_of([str(state)]) for state in range(sepsis.states)]
    ids = [task.coder.state_ids.get(tuple(w), 0) for w in words]
    names = {number: at for at, number in enumerate(places)}

    def decide(told, state):
        chances = np.zeros((len(told), sepsis.actions))
        for first in range(0, len(told), 4096):
            some = told[first : first + 4096]
            steps = len(some[0][0])
            start = window_of(steps - 1, context)
            rows = [
                {
                    "numbers": np.zeros((steps, 0), np.float32),
                    "words": np.array([words[s] for s in states]),
                    "states": np.array([ids[s] for s in states]),
                    "actions": np.array([*(names.get(a, 0) for a in actions), 0]),
                }
                for states, actions, _ in some
            ]
            windows = [Window(at, start, steps, steps - 1 - start) for at in range(len(some))]
            wishes = [task.decider.wished(np.array(rewards)) for _, _, rewards in some]
            said = task.decider.say(run.model, rows, windows, wishes)
            last = np.stack([one[steps - 1 - start] for one in said[0]])
            chances[first : first + len(some)][:, places] = last
        return chances

    told = sepsis.run(decide, count, seed)
    returns = np.array([sum(rewards) for _, _, rewards in told])
    return float(returns.mean()), float(returns.std() / np.sqrt(len(returns)))


LEARNERS = {
    "clone": ("decide-sepsis-clone", []),
    "decision transformer": ("decide-sepsis", []),
    "iteration (table)": ("decide-sepsis-q", []),
    "one-step (table)": ("decide-sepsis-q", ["task.learner=one-step"]),
    "conservative (table)": ("decide-sepsis-q", ["task.learner=conservative"]),
    "implicit (table)": ("decide-sepsis-q", ["task.learner=implicit"]),
}


def learners(sepsis: Sepsis, folder: Path, seeds: range, episodes: int, only: str) -> dict:
    found: dict[str, list[float]] = {}
    for seed in seeds:
        root = folder / str(seed)
        root.mkdir(parents=True, exist_ok=True)
        for at, (part, count) in enumerate((("train", episodes), ("valid", 2000), ("test", 2000))):
            sepsis.record(root / f"{part}.csv", count, seed + 1000 * at)
        for name, (recipe, more) in LEARNERS.items():
            if only and only not in name:
                continue
            began = time.perf_counter()
            run = regard.train(
                recipe, f"data.root={root}", *more, run=root / name.replace(" ", "-")
            )
            took = time.perf_counter() - began
            if run.recipe.model_kind == "table":
                value, error = sepsis.exact(by_state(run, sepsis)), 0.0
            else:
                value, error = simulated(run, sepsis, 40_000, 7)
            found.setdefault(name, []).append(value)
            print(f"{name:24} seed {seed}  {value:.4f} ± {error:.4f}  {took:.0f} s", flush=True)
    return {name: {"mean": float(np.mean(v)), "each": v} for name, v in found.items()}


def policies(sepsis: Sepsis, count: int) -> list[np.ndarray]:
    """From the expert's own to far from it: mixtures with random ones, sharpened and flattened."""
    rng, found = np.random.default_rng(0), []
    for number in range(count):
        other = rng.dirichlet(np.full(sepsis.actions, 0.3), sepsis.states)
        other = other * (sepsis.expert > 0)  # what was never done cannot be judged
        other /= np.maximum(other.sum(1, keepdims=True), 1e-12)
        share = 0.05 + 0.4 * number / count
        power = (0.5, 1.0, 1.5, 2.0)[number % 4]
        own = sepsis.expert**power * (sepsis.expert > 0)
        own /= np.maximum(own.sum(1, keepdims=True), 1e-12)
        mixed = (1 - share) * own + share * other
        found.append(mixed / np.maximum(mixed.sum(1, keepdims=True), 1e-12))
    return found


def judged(sepsis: Sepsis, told, policy: np.ndarray) -> Judged:
    states = np.concatenate([one[0] for one in told])
    actions = np.concatenate([one[1] for one in told])
    rewards = np.concatenate([one[2] for one in told])
    return Judged(
        np.array([len(one[0]) for one in told]), rewards[:, None], [1.0], 1.0, actions,
        sepsis.expert[states, actions], policy[states], sepsis.expert[states],
        np.zeros((len(states), 1)), ["none"], states,
    )  # fmt: skip


def held(sepsis: Sepsis, seeds: range, episodes: int, count: int = 20) -> dict:
    """How often intervals hold the truth, and how far estimates are from it."""
    rows = []
    for seed in seeds:
        told = sepsis.run(lambda _, state: sepsis.expert[state], episodes, 5000 + seed)
        for number, policy in enumerate(policies(sepsis, count)):
            truth = sepsis.exact(policy)
            for name, one in estimates(judged(sepsis, told, policy)).items():
                rows.append((seed, number, name, truth, one))
        print(f"recording {seed} judged", flush=True)
    found = {}
    for name in dict.fromkeys(row[2] for row in rows):
        own = [row for row in rows if row[2] == name and row[4].effective >= 50]
        inside = [row[4].interval[0] <= row[3] <= row[4].interval[1] for row in own]
        each = [
            sum(ok for ok, row in zip(inside, own, strict=True) if row[0] == seed) for seed in seeds
        ]
        error = float(np.sqrt(np.mean([(row[4].value - row[3]) ** 2 for row in own] or [0])))
        found[name] = {"held": sum(inside), "of": len(own), "by_recording": each, "rmse": error}
        print(f"{name:6} held {sum(inside)} of {len(own)} {each}  rmse {error:.4f}", flush=True)
    return found


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--seeds", type=int, default=5, help="how many recordings")
    asked.add_argument("--first", type=int, default=0, help="the first recording's seed")
    asked.add_argument("--episodes", type=int, default=10_000)
    asked.add_argument("--only", default="")
    asked.add_argument("--learner", default="")
    asked.add_argument("--out", type=Path, default=None)
    given = asked.parse_args()
    sepsis, found = Sepsis(), {}
    seeds = range(given.first, given.first + given.seeds)
    print(f"exact: random {sepsis.exact(np.full(sepsis.expert.shape, 1 / 25)):.4f}, "
          f"expert {sepsis.exact(sepsis.expert):.4f}")  # fmt: skip
    if given.only in ("", "learners"):
        with tempfile.TemporaryDirectory() as work:
            found["learners"] = learners(sepsis, Path(work), seeds, given.episodes, given.learner)
    if given.only in ("", "estimates"):
        found["estimates"] = held(sepsis, seeds, given.episodes)
    print(json.dumps(found, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
