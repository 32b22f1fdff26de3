"""Arrays only: policies in batches of models, their visits, values and gradients.

A batch of models is a `ModelBatch`. `choose_method(support)` says how to solve for them. `method.factor(models, policy)`
prepares the solves; its result has `state_visits()`, `policy_values(cost)` and `policy_gradient(visits, slope)`.
"""

from .banded import Banded
from .base import Factors, Method
from .choosing import choose_method
from .elimination import Elimination
from .krylov import Krylov
from .models import ModelBatch, next_values, table_rows
from .truncated import Cut
