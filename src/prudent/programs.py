"""Linear programs, all of them solved by HiGHS: one at a time, or rows added one after the other as cutting planes are.

No other module calls HiGHS. Here every status is looked at: a program that is refused in part has no optimum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import highspy
import numpy as np
from jaxtyping import Float

# How far a row or a multiplier may be off, in the program's own units; HiGHS takes nothing smaller.
TOLERANCE = 1e-10


def solve_program(*program: Any, **options: Any) -> Any | None:
    """What SciPy's `linprog` finds of this program; None if that is no optimum."""
    from scipy.optimize import linprog  # slow to import

    found = linprog(*program, **options)
    return found if found.status == 0 else None


class Optimum(NamedTuple):
    """Where a program is least.

    Attributes:
        x: the variables.
        value: of the objective.
        multipliers: of the rows that were added, at least 0: what a unit more of each lowers the value by.
    """

    x: Float[np.ndarray, " N"]
    value: float
    multipliers: Float[np.ndarray, " J"]


class CutProgram:
    """Minimise `cost x` over `low <= x <= high` with `equal x = 0` and the rows added so far, `row x <= most`.

    HiGHS keeps its basis from one solve to the next, and a row more takes it a few pivots. The same rows in the same
    order give the same bits.

    >>> program = CutProgram(np.array([0.0, 1.0]), np.array([-1.0, -np.inf]), np.array([1.0, np.inf]))
    >>> program.add(np.array([[1.0, -1.0], [-1.0, -1.0]]), np.array([0.0, 1.0]))  # |x + 1/2| - 1/2 <= t
    >>> optimum = program.solve()
    >>> [round(float(each), 9) for each in (*optimum.x, *optimum.multipliers)]
    [-0.5, -0.5, 0.5, 0.5]

    Args:
        cost: of each variable.
        low, high: bounds, which may be infinite.
        equal: a sparse matrix of equations, or None.
    """

    def __init__(
        self,
        cost: Float[np.ndarray, " N"],
        low: Float[np.ndarray, " N"],
        high: Float[np.ndarray, " N"],
        equal: Any = None,
    ):
        self._solver, self._refused = highspy.Highs(), False
        for name, value in {
            "output_flag": False,
            "threads": 1,
            "primal_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
        }.items():
            self._note(self._solver.setOptionValue(name, value))
        self._equations = 0 if equal is None else equal.shape[0]
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = len(cost), self._equations
        program.col_cost_, program.col_lower_, program.col_upper_ = cost, low, high
        program.row_lower_ = program.row_upper_ = np.zeros(self._equations)
        if equal is not None:
            rows = equal.tocsr()
            program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
            program.a_matrix_.start_, program.a_matrix_.index_ = rows.indptr, rows.indices
            program.a_matrix_.value_ = rows.data
        self._note(self._solver.passModel(program))

    def _note(self, status: highspy.HighsStatus) -> None:
        """Remember an error: what HiGHS works on is then another program than this one."""
        self._refused |= status == highspy.HighsStatus.kError

    def add(self, rows: Float[np.ndarray, "J N"], most: Float[np.ndarray, " J"]) -> None:
        """More rows, each at most a number."""
        for row, limit in zip(rows, most, strict=True):
            places = np.flatnonzero(row).astype(np.int32)
            self._note(self._solver.addRow(-highspy.kHighsInf, float(limit), len(places), places, row[places]))

    def reprice(self, cost: Float[np.ndarray, " N"]) -> None:
        """Another cost of each variable."""
        self._note(self._solver.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), cost))

    def solve(self) -> Optimum | None:
        """The optimum; None if none was found or a part was refused, as may happen at the edge of rounding."""
        self._note(self._solver.run())
        if self._refused or self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        found = self._solver.getSolution()
        multipliers = np.maximum(-np.array(found.row_dual)[self._equations :], 0.0)
        return Optimum(np.array(found.col_value), self._solver.getInfo().objective_function_value, multipliers)
