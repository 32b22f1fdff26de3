"""Arrays only: factor models under a policy, solve for visits and values, differentiate, plan and bound."""

from .models import ModelBatch, table_rows
