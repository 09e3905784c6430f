"""Facts for rules. `load_facts` imports the modules of this package; the computations live in `ir/facts`."""
