"""The progress page: a tab on each task instance of Airflow's UI, and an address of its own.

`plugin.py` hangs it into Airflow, `app.py` answers requests and asks for Airflow's login, `lookup.py` finds
the sweep of a task instance, `readers.py` keeps the readers of its storage, `views.py` makes the JSON that
`static/airflow.js` draws with the parts of `raysweep.pages`.
"""
