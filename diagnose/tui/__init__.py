"""The screen: `diagnose view`. `app.run_app` is the way in; nothing here is imported by any other room but `cli`."""
