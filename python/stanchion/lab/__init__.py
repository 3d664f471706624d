"""The lab: experiments of the literature, run again with the real programs, and shown as pictures.

Nothing outside imports it: `stanchion lab` becomes `python -m stanchion.lab`. It needs the extra of the same name.
"""
