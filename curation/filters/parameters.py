"""The types of parameters that filters share.

What may live here: annotated types with their bounds.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

#: A number of things.
Count = Annotated[int, Field(ge=0)]
#: A finite number.
Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
#: A part of a whole: 0 to 1.
Share = Annotated[float, Field(ge=0, le=1)]
