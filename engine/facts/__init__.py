"""Facts that rules may ask. `load_facts` imports the modules of this package; what they compute lives in `ir/facts`."""
