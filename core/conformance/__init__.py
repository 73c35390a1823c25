"""The conformance kit: does a plugin do what its declaration says?

::

    pytest --pyargs core.conformance --strategy its_name --accelerator NAME

Each plugin that is named is held to its own declaration, on real runs; the others are chosen as the Trainer would
and only help. The checks are the tests of this package, and docs/testing-a-plugin.md says what each of them means.
"""
