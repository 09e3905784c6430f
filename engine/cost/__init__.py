"""Predict the time of a kernel on a device: count its instructions, and apply a model with the device's constants.

Nothing here has been calibrated: published peaks and typical shares of them, no measurement. Whatever shows a figure of
it says `predicted`.
"""
