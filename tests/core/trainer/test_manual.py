"""Optimization by the module itself, and parts of the step that its author wrote."""

import copy

import pytest
import torch
from support.nets import Net, loader, quiet_trainer

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


@pytest.mark.parametrize(("setting", "value"), [("accumulate_grad_batches", 2), ("gradient_clip_val", 1.0)])
def test_settings_that_would_do_nothing_are_refused(setting, value):
    """Accumulation and clipping by the Trainer are refused for a module that optimizes by itself."""
    with pytest.raises(InterlockError, match=f"{setting}={value}"):
        quiet_trainer(**{setting: value}).fit(Gan(), loader(2))


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
