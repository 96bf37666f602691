"""Does the attention of a model explain its answers? Measures, and a certificate of each weight (`zoo explain`)."""

from zoo.explanations.certificate import Certificate
from zoo.explanations.measure import faithfulness

__all__ = ["Certificate", "faithfulness"]
