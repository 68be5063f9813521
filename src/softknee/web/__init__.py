"""Pages served to a browser. `softknee.web.workbench` is the one there is."""
