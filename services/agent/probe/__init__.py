"""What the machine is and how it fares: its cards through NVML, its clock, its disk.

`facts` are told once a start; `health` and `checks` are looked at again and again, `xids` are listened for.
"""
