from experiments import frame

frame.main(__file__)
