"""What a kernel will take on a device, predicted: its instructions counted, and a model with the device's constants.

Nothing here has been calibrated: published peaks and typical shares of them, no measurement. Whatever shows a figure of
it says `predicted`.
"""
