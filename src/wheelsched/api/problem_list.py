"""Problems of one document, collected; the class is the core's, which collects them too."""

from wheelsched.core.problem_list import ProblemList

__all__ = ["ProblemList"]
