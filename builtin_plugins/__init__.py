"""The plugins that come with Interlock. Each is a package of its own and enters by the public entry points."""
