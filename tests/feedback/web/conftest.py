"""All tests of the page share how a browser is started."""

from tests.browser import browser as browser
