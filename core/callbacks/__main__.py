"""``python -m core.callbacks`` lists the callbacks that installed packages bring."""

from core.callbacks.installed import VARIABLE, installed_callbacks, table

if __name__ == "__main__":
    items = installed_callbacks()
    print(table(items) if items else "no installed package brings callbacks")
    if items:
        print(f'take one with Trainer(callbacks=["name"]) or {VARIABLE}=name')
