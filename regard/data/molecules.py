"""Molecules: SMILES as atoms and bonds, by rdkit."""

from __future__ import annotations

from typing import Any

from ..errors import DataError


def parsed(smiles: str) -> Any:
    """rdkit's molecule; a ValueError where it is none."""
    try:
        from rdkit import Chem, RDLogger
    except ImportError as error:
        raise DataError(
            "SMILES need rdkit, which is not installed: pip install 'regard[molecules]'."
        ) from error
    RDLogger.DisableLog("rdApp.*")  # type: ignore[attr-defined]  # what is wrong is told below
    molecule = Chem.MolFromSmiles(smiles.strip())
    if molecule is None or not molecule.GetNumAtoms():
        raise ValueError(f"'{smiles[:60]}' must be the SMILES of a molecule")
    return molecule


def drawn(smiles: str) -> list[tuple[float, float]]:
    """Where chemists draw each atom, across and down."""
    molecule = parsed(smiles)
    from rdkit.Chem.rdDepictor import Compute2DCoords

    Compute2DCoords(molecule)
    places = molecule.GetConformer().GetPositions()
    return [(float(x), -float(y)) for x, y, _ in places]


def atoms_and_bonds(smiles: str) -> tuple[list[list[str]], list[list[int]], list[list[str]]]:
    """Tags of each atom, bonds both ways of which each has two ends, and tags of each bond."""
    molecule = parsed(smiles)
    atoms = [
        [
            f"atom {atom.GetSymbol()}",
            f"neighbours {atom.GetDegree()}",
            f"charge {atom.GetFormalCharge():+d}",
            f"hydrogens {atom.GetTotalNumHs()}",
            f"hybrid {atom.GetHybridization()!s}",
            *(["aromatic"] if atom.GetIsAromatic() else []),
            *(["ring"] if atom.IsInRing() else []),
            *([f"chiral {atom.GetChiralTag()!s}"] if int(atom.GetChiralTag()) else []),
        ]
        for atom in molecule.GetAtoms()
    ]
    bonds, kinds = list[list[int]](), list[list[str]]()
    for bond in molecule.GetBonds():
        bonds.append([bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()])
        kinds.append(
            [
                f"bond {bond.GetBondType()!s}",
                *(["conjugated"] if bond.GetIsConjugated() else []),
                *(["in a ring"] if bond.IsInRing() else []),
                *([f"stereo {bond.GetStereo()!s}"] if int(bond.GetStereo()) else []),
            ]
        )
    return atoms, bonds, kinds
