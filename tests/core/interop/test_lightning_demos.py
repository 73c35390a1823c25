"""Lightning's demos, and loops as people write them for it, end under our Trainer as they do under its own."""

import pytest
import torch
from support.nets import quiet_trainer
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

pl = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
demos = pytest.importorskip("lightning.pytorch.demos")
boring = pytest.importorskip("lightning.pytorch.demos.boring_classes")
pytestmark = pytest.mark.filterwarnings("ignore")
QUIET = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")


def both(make, folder, *, test=False, **settings):
    """Fit what ``make`` gives under each Trainer, from one seed; return parameters and metrics of both."""
    found = []
    theirs = {**dict.fromkeys(QUIET, False), "accelerator": "cpu", "default_root_dir": folder, "max_epochs": 1}
    for trainer in (quiet_trainer(**settings), pl.Trainer(**{**theirs, **settings})):
        pl.seed_everything(3, verbose=False)
        module, data = make()
        trainer.fit(module, **data)
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        if test:
            metrics |= trainer.test(module, verbose=False, **data)[0]
        found.append((module.state_dict(), metrics, trainer.global_step))
    (ours, our_metrics, our_steps), (expected, their_metrics, their_steps) = found
    assert our_steps == their_steps
    assert our_metrics == pytest.approx(their_metrics, rel=1e-5)
    for name, value in expected.items():
        torch.testing.assert_close(ours[name], value, rtol=0, atol=0)
    return our_metrics


def test_the_lstm_demo(tmp_path, monkeypatch):
    """The demo of an LSTM, which keeps its hidden state between steps and brings a batch sampler, trains as there."""
    lstm = pytest.importorskip("lightning.pytorch.demos.lstm")

    class Text(Dataset):
        def __init__(self, download=False):
            self.tokens = torch.randint(0, 9, (42, 6), generator=torch.Generator().manual_seed(0))

        def __len__(self):
            return len(self.tokens)

        def __getitem__(self, index):
            return self.tokens[index, :-1], self.tokens[index, 1:]

    monkeypatch.setattr(lstm, "WikiText2", Text)
    assert both(lambda: (lstm.LightningLSTM(vocab_size=9), {}), tmp_path).keys() == {"train_loss"}


class Classifier(pl.LightningModule):
    """The classifier of digits that beginners' pages show."""

    def __init__(self, hidden=16, lr=0.01):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, x):
        return self.net(x)

    def step(self, batch, name):
        x, y = batch
        logits = self(x)
        loss = nn.functional.cross_entropy(logits, y)
        accuracy = (logits.argmax(1) == y).float().mean()
        self.log_dict({f"{name}_loss": loss, f"{name}_acc": accuracy}, on_epoch=True, on_step=name == "train")
        return loss

    def training_step(self, batch, batch_idx):
        return self.step(batch, "train")

    def validation_step(self, batch, batch_idx):
        self.step(batch, "val")

    def test_step(self, batch, batch_idx):
        self.step(batch, "test")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def test_the_digits_data_module_demo(tmp_path, monkeypatch):
    """The demo's data module for MNIST prepares, splits and brings data for training, validation and testing."""
    monkeypatch.setenv("PL_USE_MOCKED_MNIST", "1")
    mnist = pytest.importorskip("lightning.pytorch.demos.mnist_datamodule")
    folder = tmp_path / "MNIST" / "complete"
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(1)
    for name, count in (("training.pt", 90), ("test.pt", 20)):
        images = torch.randint(0, 256, (count, 28, 28), dtype=torch.uint8, generator=generator)
        torch.save((images, torch.randint(0, 10, (count,), generator=generator)), folder / name)

    def make():
        data = mnist.MNISTDataModule(str(tmp_path), val_split=20, num_workers=0, batch_size=16)
        return Classifier(), {"datamodule": data}

    metrics = both(make, tmp_path, test=True, max_epochs=2, num_sanity_val_steps=0)
    assert {"train_loss_epoch", "val_acc", "test_loss"} <= metrics.keys()


class Gan(pl.LightningModule):
    """Two optimizers in turn, with the older pair of toggle calls."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.critic = nn.Linear(4, 8), nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        first, second = self.optimizers()
        noise = torch.randn(len(batch), 4)
        ones, zeros = torch.ones(len(batch), 1), torch.zeros(len(batch), 1)
        loss = nn.functional.binary_cross_entropy_with_logits
        self.toggle_optimizer(first)
        g_loss = loss(self.critic(self.generator(noise)), ones)
        self.log("g_loss", g_loss, prog_bar=True)
        self.manual_backward(g_loss)
        first.step()
        first.zero_grad()
        self.untoggle_optimizer(first)
        self.toggle_optimizer(second)
        fake = loss(self.critic(self.generator(noise).detach()), zeros)
        d_loss = (loss(self.critic(batch), ones) + fake) / 2
        self.log("d_loss", d_loss, prog_bar=True)
        self.manual_backward(d_loss)
        self.clip_gradients(second, gradient_clip_val=0.1, gradient_clip_algorithm="norm")
        second.step()
        second.zero_grad()
        self.untoggle_optimizer(second)

    def configure_optimizers(self):
        first = torch.optim.Adam(self.generator.parameters(), lr=0.01, betas=(0.5, 0.999))
        second = torch.optim.Adam(self.critic.parameters(), lr=0.01, betas=(0.5, 0.999))
        return [first, second], []

    def train_dataloader(self):
        return DataLoader(torch.randn(12, 8), batch_size=3, shuffle=True)


def test_a_gan(tmp_path):
    """Adversarial nets by manual optimization end at the peer's parameters."""
    assert both(lambda: (Gan(), {}), tmp_path, max_epochs=2).keys() == {"g_loss", "d_loss"}


class Experience(IterableDataset):
    """Samples of a walk, made anew in each epoch by the policy of the moment."""

    def __init__(self, generate):
        self.generate = generate

    def __iter__(self):
        yield from self.generate()


class Ppo(pl.LightningModule):
    """A small proximal policy optimization: data comes from the policy, and each batch trains actor and critic."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.actor = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
        self.critic = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
        self.mean_reward = 0.0

    def walks(self):
        for _ in range(3):
            place, steps = torch.zeros(2), []
            for _ in range(8):
                with torch.no_grad():
                    policy = torch.distributions.Categorical(logits=self.actor(place))
                    action = policy.sample()
                steps.append([place, action, policy.log_prob(action), 1.0 - float(place.norm())])
                place = place + torch.tensor([0.1, 0.2]) * (1 if action else -1)
            gain = 0.0
            for step in reversed(steps):
                gain = step[-1] = step[-1] + 0.9 * gain
            self.mean_reward = steps[0][-1]
            yield from steps

    def train_dataloader(self):
        return DataLoader(Experience(self.walks), batch_size=6)

    def training_step(self, batch, batch_idx):
        place, action, before, gain = batch
        gain = gain.float()
        actor, critic = self.optimizers(use_pl_optimizer=True)
        self.log("reward", self.mean_reward, prog_bar=True, on_step=False, on_epoch=True)
        advantage = gain - self.critic(place).squeeze(1).detach()
        ratio = (torch.distributions.Categorical(logits=self.actor(place)).log_prob(action) - before).exp()
        actor_loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        self.manual_backward(actor_loss)
        actor.step()
        actor.zero_grad()
        critic_loss = (gain - self.critic(place).squeeze(1)).pow(2).mean()
        self.manual_backward(critic_loss)
        critic.step()
        critic.zero_grad()
        self.log("critic_loss", critic_loss, on_step=False, on_epoch=True, prog_bar=True)

    def configure_optimizers(self):
        return [torch.optim.Adam(net.parameters(), lr=0.01) for net in (self.actor, self.critic)]


def test_a_loop_whose_data_comes_from_its_policy(tmp_path):
    """A PPO-style loop, whose loader asks the module for its samples, ends at the peer's parameters."""
    assert both(lambda: (Ppo(), {}), tmp_path, max_epochs=3).keys() == {"reward", "critic_loss"}


@pytest.mark.parametrize("kind", ["BoringDataModule", "BoringDataModuleNoLen"])
def test_the_boring_data_modules(tmp_path, kind):
    """Each of the demo's data modules, the one without lengths too, trains the demo module as there."""
    settings = {"limit_train_batches": 5, "limit_val_batches": 2, "limit_test_batches": 2}
    both(lambda: (boring.BoringModel(), {"datamodule": getattr(boring, kind)()}), tmp_path, test=True, **settings)


def test_the_demo_model(tmp_path):
    """The demo module that brings its own data and optimizer trains as there."""
    both(lambda: (boring.DemoModel(), {"train_dataloaders": rows()}), tmp_path, limit_train_batches=4)


def rows():
    return DataLoader(torch.randn(16, 32, generator=torch.Generator().manual_seed(2)), batch_size=2)
