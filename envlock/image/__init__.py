"""From a lockfile to an image: rendered, built, made canonical, and proved against what an engine holds."""
