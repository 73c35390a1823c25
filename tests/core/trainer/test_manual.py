"""Optimization by the module itself, and parts of the step that its author wrote."""

import copy
import warnings

import pytest
import torch
from support.nets import Net, loader, quiet_trainer

from builtin_plugins.fp16_mixed.precision import Float16MixedPrecision
from core import Module
from core.errors import InterlockError


class Gan(Module):
    """Two nets, two optimizers, each with its own backward."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        torch.manual_seed(0)
        self.generator, self.critic = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        self.seen = []

    def losses(self, batch):
        yield self.generator, -self.critic(self.generator(batch)).mean()
        yield self.critic, self.critic(self.generator(batch).detach()).mean() - self.critic(batch).mean()

    def training_step(self, batch, batch_idx):
        for optimizer, (_, loss) in zip(self.optimizers(), self.losses(batch), strict=True):
            with self.toggled_optimizer(optimizer):
                self.seen.append([p.requires_grad for p in self.parameters()])
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()

    def configure_optimizers(self):
        return [torch.optim.SGD(net.parameters(), 0.1) for net in (self.generator, self.critic)]


def test_a_gan_by_hand_equals_the_plain_loop():
    """Two optimizers stepped in training_step give the parameters of a hand-written loop, and count four steps."""
    module, reference = Gan(), Gan()
    trainer = quiet_trainer()
    trainer.fit(module, loader(2))
    optimizers = reference.configure_optimizers()
    for batch in loader(2):
        for optimizer, (net, loss) in zip(optimizers, reference.losses(batch), strict=True):
            optimizer.zero_grad()
            loss.backward(inputs=list(net.parameters()))
            optimizer.step()
    for ours, theirs in zip(module.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-7)
    assert trainer.global_step == 4
    assert module.seen[0] == [True, True, False, False]
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_manual_steps_are_skipped_when_scaled_gradients_overflow():
    """With loss scaling a manual step that overflows leaves the parameters alone and is counted as skipped."""

    class Overflows(Gan):
        def losses(self, batch):
            for net, loss in super().losses(batch):
                yield net, loss * float("inf")

    module = Overflows()
    before = copy.deepcopy(module.state_dict())
    trainer = quiet_trainer(precision="16-mixed")
    trainer.fit(module, loader(1))
    assert trainer.skipped_steps == 2
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value, before[name])


@pytest.mark.parametrize("algorithm", ["norm", "value"])
def test_clipping_by_hand_is_of_true_gradients(algorithm):
    """With loss scaling clip_gradients unscales first, once: clipped steps are those in float32, within 1e-3."""

    class Clips(Gan):
        def training_step(self, batch, batch_idx):
            for optimizer, (_, loss) in zip(self.optimizers(), self.losses(batch / 8), strict=True):
                optimizer.zero_grad()
                self.manual_backward(loss)
                self.clip_gradients(optimizer, 1e-2, algorithm)
                optimizer.step()

        def on_before_optimizer_step(self, optimizer):
            gradients = torch.cat([p.grad.flatten() for group in optimizer.param_groups for p in group["params"]])
            self.seen.append(float(gradients.norm() if algorithm == "norm" else gradients.abs().max()))

    found = []
    for precision in ("32-true", Float16MixedPrecision(init_scale=1024.0)):
        module = Clips()
        trainer = quiet_trainer(precision=precision)
        trainer.fit(module, loader(3))
        assert (trainer.global_step, trainer.skipped_steps) == (6, 0)
        assert module.seen == pytest.approx([1e-2] * 6, rel=1e-3)
        found.append(module.state_dict())
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("setting", "value"), [("accumulate_grad_batches", 2), ("gradient_clip_val", 1.0)])
def test_settings_that_would_do_nothing_are_refused(setting, value):
    """Accumulation and clipping by the Trainer are refused for a module that optimizes by itself."""
    with pytest.raises(InterlockError, match=f"{setting}={value}"):
        quiet_trainer(**{setting: value}).fit(Gan(), loader(2))


class ByHand(Module):
    """One layer, whose training_step is a function of the test."""

    automatic_optimization = False

    def __init__(self, step, optimizer=torch.optim.SGD, scheduler=None):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self._step, self._made = torch.nn.Linear(4, 1), step, (optimizer, scheduler)

    def loss(self, batch):
        return (self.layer(batch / 10) - 1).square().mean()

    def training_step(self, batch, batch_idx):
        return self._step(self, batch)

    def configure_optimizers(self):
        make, schedule = self._made
        optimizers = [make(part, 0.1) for part in ([self.layer.weight], [self.layer.bias])]
        return optimizers, [schedule(optimizer) for optimizer in optimizers] if schedule else []


def by_closure(module, batch):
    """Step each optimizer with a closure, and note what its step returned."""

    def closure():
        optimizer.zero_grad()
        loss = module.loss(batch)
        module.manual_backward(loss)
        return loss

    for optimizer in module.optimizers():
        module.returned = optimizer.step(closure=closure)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.LBFGS])
def test_a_step_by_hand_takes_a_closure_and_returns_its_loss(optimizer):
    """SGD and LBFGS, which evaluates the closure many times, step by hand as they do in a plain loop."""
    module, plain = ByHand(by_closure, optimizer), ByHand(None, optimizer)
    quiet_trainer().fit(module, loader(2))
    optimizers, _ = plain.configure_optimizers()
    plain.optimizers, plain.manual_backward = lambda: optimizers, torch.Tensor.backward
    for batch in loader(2):
        by_closure(plain, batch)
    assert module.returned == plain.returned
    torch.testing.assert_close(dict(module.named_parameters()), dict(plain.named_parameters()), rtol=0, atol=0)


def test_schedulers_by_hand_step_when_they_are_told_to():
    """A module that optimizes by itself steps its schedulers itself: none moves at the end of an epoch."""

    def step(module, batch):
        for optimizer in module.optimizers():
            optimizer.zero_grad()
            module.manual_backward(module.loss(batch))
            optimizer.step()
            module.watched.append(optimizer.param_groups[0]["lr"])
        if module.trainer.is_last_batch:
            module.lr_schedulers()[1].step()

    module = ByHand(step, scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5))
    module.watched = []
    quiet_trainer(max_epochs=3).fit(module, loader(1))
    assert module.watched == [0.1, 0.1, 0.1, 0.05, 0.1, 0.025]


def test_a_plateau_by_hand_needs_no_monitor():
    """ReduceLROnPlateau is stepped by the module with what it finds in callback_metrics, under the plain name."""

    def step(module, batch):
        module.log("loss", module.loss(batch), on_step=True, on_epoch=True)

    class Ends(ByHand):
        def on_train_epoch_end(self):
            values = self.trainer.callback_metrics
            assert values["loss"] == values["loss_epoch"] != values["loss_step"]
            for scheduler in self.lr_schedulers():
                scheduler.step(values["loss"])

    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    trainer = quiet_trainer(max_epochs=3)
    trainer.fit(Ends(step, scheduler=lambda o: plateau(o, factor=0.5, patience=0)), loader(2))
    assert [optimizer.param_groups[0]["lr"] for optimizer in trainer.optimizers] == [0.025, 0.025]


def test_toggle_model_lets_one_optimizers_parameters_learn():
    """Inside toggle_model only the optimizer's own parameters require gradients, and all do afterwards."""

    def step(module, batch):
        for optimizer in module.optimizers():
            with optimizer.toggle_model(sync_grad=False):
                module.seen.append([p.requires_grad for p in module.parameters()])
        module.seen.append([p.requires_grad for p in module.parameters()])

    module = ByHand(step)
    module.seen = []
    quiet_trainer().fit(module, loader(1))
    assert module.seen == [[True, False], [False, True], [True, True]]


def test_backward_past_the_plugins_is_refused_where_they_are_needed():
    """loss.backward() in place of manual_backward leaves gradients unscaled: an error says so; else it is fine."""

    def step(module, batch):
        for optimizer in module.optimizers():
            optimizer.zero_grad()
        module.loss(batch).backward()
        for optimizer in module.optimizers():
            optimizer.step()

    with pytest.raises(InterlockError, match=r"not scaled as this precision .*\n.* self\.manual_backward\(loss\)"):
        quiet_trainer(precision="16-mixed").fit(ByHand(step), loader(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet_trainer().fit(ByHand(step), loader(2))


def test_torchs_own_optimizer_can_be_had():
    """optimizers(use_pl_optimizer=False) gives what configure_optimizers returned."""

    def step(module, batch):
        module.same = module.optimizers(use_pl_optimizer=False) == module.trainer.optimizers

    module = ByHand(step)
    quiet_trainer().fit(module, loader(1))
    assert module.same


def test_extra_arguments_of_backward_arrive():
    """manual_backward(loss, retain_graph=True) keeps the graph for a second backward."""

    class Twice(Gan):
        def training_step(self, batch, batch_idx):
            loss = self.critic(batch).mean()
            self.manual_backward(loss, retain_graph=True)
            self.manual_backward(loss)
            self.grad = self.critic.weight.grad.clone()
            self.optimizers()[1].step()

    module = Twice()
    quiet_trainer(limit_train_batches=1).fit(module, loader())
    torch.testing.assert_close(module.grad, 2 * next(iter(loader())).mean(0, keepdim=True))


def test_an_own_optimizer_step_decides_when_the_loss_is_evaluated():
    """A module's optimizer_step gets a closure that runs the step; what it changes about the optimizer holds."""

    class Warmup(Net):
        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
            optimizer.step(closure=optimizer_closure)
            for group in optimizer.param_groups:
                group["lr"] = 0.5
            self.calls.append(("step", batch_idx))

    net = Warmup()
    trainer = quiet_trainer()
    trainer.fit(net, loader(2))
    assert [call for call in net.calls if call[0] != "val"] == [("train", 0), ("step", 0), ("train", 1), ("step", 1)]
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.5


def test_own_clipping_zeroing_and_backward_are_called():
    """configure_gradient_clipping, optimizer_zero_grad and backward of the module take the place of the defaults."""

    class Own(Net):
        def configure_gradient_clipping(self, optimizer, gradient_clip_val, gradient_clip_algorithm):
            self.calls.append(("clip", gradient_clip_val))
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

        def optimizer_zero_grad(self, epoch, batch_idx, optimizer):
            self.calls.append(("zero", batch_idx))
            optimizer.zero_grad()

        def backward(self, loss):
            self.calls.append(("backward", 0))
            loss.backward()

    net = Own()
    quiet_trainer(gradient_clip_val=0.5).fit(net, loader(1))
    assert net.calls == [("train", 0), ("zero", 0), ("backward", 0), ("clip", 0.5)]
