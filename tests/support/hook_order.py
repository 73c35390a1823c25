"""The order in which a well-known trainer calls the hooks of modules and callbacks, and what records it."""

import torch
from torch.utils.data import DataLoader

VALIDATION_BATCH = [
    "m.on_before_batch_transfer",
    "m.transfer_batch_to_device",
    "m.on_after_batch_transfer",
    "cb.on_validation_batch_start",
    "m.on_validation_batch_start",
    "m.validation_step",
    "cb.on_validation_batch_end",
    "m.on_validation_batch_end",
]
VALIDATION = [
    *[
        "m.on_validation_model_eval",
        "cb.on_validation_start",
        "m.on_validation_start",
        "cb.on_validation_epoch_start",
        "m.on_validation_epoch_start",
    ],
    *VALIDATION_BATCH * 2,
    *[
        "cb.on_validation_epoch_end",
        "m.on_validation_epoch_end",
        "cb.on_validation_end",
        "m.on_validation_end",
        "m.on_validation_model_train",
    ],
]
BATCH = [
    "m.on_before_batch_transfer",
    "m.transfer_batch_to_device",
    "m.on_after_batch_transfer",
    "cb.on_train_batch_start",
    "m.on_train_batch_start",
    "m.optimizer_step",
    "m.training_step",
    "cb.on_before_zero_grad",
    "m.on_before_zero_grad",
    "m.optimizer_zero_grad",
    "cb.on_before_backward",
    "m.on_before_backward",
    "m.backward",
    "cb.on_after_backward",
    "m.on_after_backward",
    "cb.on_before_optimizer_step",
    "m.on_before_optimizer_step",
    "m.configure_gradient_clipping",
]
BATCH_END = ["cb.on_train_batch_end", "m.on_train_batch_end"]
FIT = [
    *["m.configure_callbacks", "m.prepare_data", "cb.setup", "m.setup", "m.configure_model", "m.configure_optimizers"],
    *["cb.on_fit_start", "m.on_fit_start", "cb.on_sanity_check_start"],
    *VALIDATION,
    *[
        "cb.on_sanity_check_end",
        "cb.on_train_start",
        "m.on_train_start",
        "cb.on_train_epoch_start",
        "m.on_train_epoch_start",
    ],
    *BATCH,
    *BATCH_END,
    *BATCH,
    "m.lr_scheduler_step",
    *BATCH_END,
    "m.on_validation_model_zero_grad",
    *VALIDATION,
    *[
        "cb.on_train_epoch_end",
        "m.on_train_epoch_end",
        "cb.state_dict",
        "cb.on_save_checkpoint",
        "m.on_save_checkpoint",
    ],
    *["cb.on_train_end", "m.on_train_end", "cb.on_fit_end", "m.on_fit_end", "cb.teardown", "m.teardown"],
]
MODULE_HOOKS = sorted({call[2:] for call in FIT if call.startswith("m.")} - {"training_step", "validation_step"})
CALLBACK_HOOKS = sorted({call[3:] for call in FIT if call.startswith("cb.")})


def recorders(module_base, callback_base, samples=2):
    """Return a module class and a callback class that write each call of a hook into one list."""
    log = []

    class Recorded(module_base):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, batch_idx):
            log.append("m.training_step")
            return self.layer(batch).sum()

        def validation_step(self, batch, batch_idx):
            log.append("m.validation_step")

        def train_dataloader(self):
            return DataLoader(torch.randn(samples, 4), batch_size=1)

        val_dataloader = train_dataloader

    def recording(name, before):
        def hook(self, *arguments, **keywords):
            log.append(name)
            return before(self, *arguments, **keywords)

        return hook

    def optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    first = {"configure_optimizers": optimizers, "configure_callbacks": lambda self: []}
    for name in MODULE_HOOKS:
        before = first.get(name) or getattr(module_base, name, lambda self, *rest, **keywords: None)
        setattr(Recorded, name, recording(f"m.{name}", before))
    listening = {name: recording(f"cb.{name}", getattr(callback_base, name)) for name in CALLBACK_HOOKS}
    return Recorded, type("Listening", (callback_base,), listening), log


def run(trainer_class, module_base, callback_base, folder, **settings):
    """Fit a module of ``module_base`` with all hooks filled, two batches on each rank, and return the calls."""
    ranks = settings.get("devices", 1)
    module, callback, log = recorders(module_base, callback_base, samples=2 * ranks)
    trainer = trainer_class(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=[callback()],
        **settings,
    )
    trainer.fit(module())
    return log
