"""Put the project's root on the path of the tests.

``tests/`` is on it for the helpers in ``tests/support``, and holds folders called ``core`` and ``builtin_plugins``:
where the project is installed with ``pip install -e``, Python would take those for the packages themselves.
"""
