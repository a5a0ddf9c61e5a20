"""The commands of ``notsodeep``, one module each."""
