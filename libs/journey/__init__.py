"""Journeys: what the trace files of a stack tell of one job, from its submission to its invoice."""

from libs.journey.follow import Journey as Journey
from libs.journey.follow import NoJourneyError as NoJourneyError
from libs.journey.follow import follow as follow
from libs.journey.follow import jobs as jobs
from libs.journey.reading import Process as Process
from libs.journey.row import Row as Row
from libs.journey.rows import rows as rows
from libs.journey.span import Span as Span
