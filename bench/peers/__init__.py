"""Other systems on the same machine in the same run, each as its documentation starts it."""
