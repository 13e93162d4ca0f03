"""The errors a user meets: one sentence that says where, what must hold, and what to do."""


class RegardError(Exception):
    """Something the user can put right; the shell prints it in one line and exits 2."""


class RecipeError(RegardError):
    """A recipe or an override that cannot be meant."""


class UnknownNameError(RecipeError):
    """A name that the dictionary which a setting picks from does not have."""

    def __init__(self, message: str, setting: str, name: object, origin: str) -> None:
        super().__init__(message)
        self.setting, self.name, self.origin = setting, name, origin


class DataError(RegardError):
    """A data file that cannot be used as it is."""


class RunError(RegardError):
    """A run folder, checkpoint or training run that cannot go on."""


class InputError(RegardError):
    """An input given to a trained model that it cannot take."""
