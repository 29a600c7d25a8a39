"""What a person does on the page, and sees of it."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 60.0


def wait(condition: Callable[[], object]) -> None:
  """Returns once a condition holds."""
  end = time.monotonic() + PATIENCE_S
  while not condition():
    assert time.monotonic() < end, 'it never came to hold'
    time.sleep(0.02)


class Person:
  """Somebody in front of a tab of a browser."""

  def __init__(self, browser, url, width=1280, height=860, scheme='light'):
    self.browser = browser
    self.tab = browser.current_window_handle
    self.look(width, height, scheme)
    browser.get_log('browser')  # Forgets what was before.
    self.open(url)

  def open(self, url):
    self.browser.get(url)
    self.is_ready()

  def is_ready(self):
    wait(lambda: self.run('return document.documentElement.dataset.ready'))

  def reload(self):
    self.browser.refresh()
    self.is_ready()

  def look(self, width, height, scheme='light'):
    """Sets the size of the window and the scheme of colours."""
    size = {'width': width, 'height': height, 'deviceScaleFactor': 1}
    self.browser.execute_cdp_cmd(
      'Emulation.setDeviceMetricsOverride', {**size, 'mobile': False}
    )
    scheme = {'name': 'prefers-color-scheme', 'value': scheme}
    # Else a picture may show the middle of a change.
    calm = {'name': 'prefers-reduced-motion', 'value': 'reduce'}
    self.browser.execute_cdp_cmd(
      'Emulation.setEmulatedMedia', {'features': [scheme, calm]}
    )

  def turn(self):
    """Turns to this person's tab."""
    self.browser.switch_to.window(self.tab)

  def run(self, script, *arguments):
    return self.browser.execute_script(script, *arguments)

  def text(self, selector):
    script = 'return document.querySelector(arguments[0])?.innerText ?? ""'
    return self.run(script, selector)

  def texts(self, selector):
    script = (
      'return [...document.querySelectorAll(arguments[0])]'
      '.map((each) => each.innerText)'
    )
    return self.run(script, selector)

  def press(self, *keys):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(self.browser).send_keys(*keys).perform()

  def press_with_control(self, key):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    chain = ActionChains(self.browser).key_down(Keys.CONTROL).send_keys(key)
    chain.key_up(Keys.CONTROL).perform()

  def click(self, selector):
    self.run('document.querySelector(arguments[0]).click()', selector)

  def sees(self, selector, part):
    wait(lambda: part in self.text(selector))

  def focused(self):
    return self.run('return document.activeElement.id')

  def shown(self):
    """Ids of the responses in the order in which they stand there."""
    return self.run(
      'return [...document.querySelectorAll(".answer")]'
      '.map((each) => each.dataset.id)'
    )

  def width_beyond(self):
    """Pixels by which the page can be scrolled sideways."""
    return self.run(
      'const page = document.documentElement;'
      'return page.scrollWidth - page.clientWidth'
    )

  def problems(self):
    """What the browser logged, connections that failed left out."""
    return [
      entry['message']
      for entry in self.browser.get_log('browser')
      if 'net::ERR_' not in entry['message']
    ]
