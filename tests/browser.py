"""Headless Chromium for tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

_FLAGS = (
  '--headless=new',
  '--disable-gpu',
  '--disable-dev-shm-usage',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
)


@pytest.fixture(scope='module')
def browser(tmp_path_factory) -> Iterator:
  """A browser with a profile of its own; skips where there is none."""
  reason = 'is not installed: docs/testing.md'
  webdriver = pytest.importorskip(
    'selenium.webdriver', reason=f'selenium {reason}'
  )
  from selenium.webdriver.chrome.service import Service

  chromium = shutil.which('chromium') or shutil.which('google-chrome')
  driver_path = shutil.which('chromedriver')
  if not (chromium and driver_path):
    pytest.skip(f'Chromium or chromedriver {reason}')
  options = webdriver.ChromeOptions()
  options.binary_location = chromium
  profile = tmp_path_factory.mktemp('profile')
  for flag in (*_FLAGS, f'--user-data-dir={profile}'):
    options.add_argument(flag)
  if os.geteuid() == 0:  # Chromium refuses to confine itself as root.
    options.add_argument('--no-sandbox')
  options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
  driver = webdriver.Chrome(options=options, service=Service(driver_path))
  yield driver
  driver.quit()
