"""Arrays only: policies in batches of models, their visits, values and gradients.

A batch of models is a `ModelBatch`. `choose_method(support)` says how to solve for them. `method.factor(models,
policy)` prepares the solves; its result has `state_visits()`, `policy_values(cost)` and `policy_gradient(visits,
slope)`. `plan(models)` finds an optimal policy of each model, with bounds. Rows of which a share is not known are
whole again in `complete(factors, cost)`, where it leads to the dearest visited state.
"""

from .banded import Banded
from .base import Factors, Method
from .boxes import (
    BoxModels,
    BoxPlans,
    bound_deviation_costs,
    cheapest_rows,
    nearest_rows,
    plan_in_boxes,
    visits_of_rows,
)
from .choosing import choose_method
from .completions import Completed, complete, largest_visited, losses_of_targets
from .elimination import Elimination
from .gauss_seidel import EPSILON
from .krylov import Krylov
from .models import ModelBatch, next_values, table_rows
from .plans import LARGEST_DIRECT, ModelPlans, action_futures, level_of, plan, row_error
from .sweeps import Sweeps, add_slopes, beyond, depths_of, values_of, visits_of
from .truncated import TruncatedSum
