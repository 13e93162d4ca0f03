"""The few parts every model is built of; they take tensors and plain numbers, nothing else.

The alphabet of shapes, used in every comment of this package:

    B  batch        T  queries      S  keys         D  width
    H  heads        K  head width   F  hidden       V  vocabulary     L  depth
"""
