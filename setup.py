"""Packaging: names, ranges and the command. The build system and the tools' settings are in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="starlings",
    version="0.1.0",
    description="Decentralized peer-to-peer training for PyTorch: no server, no leader, no barrier",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["p2p", "p2p.*", "topology", "topology.*", "optim", "optim.*"]),
    package_data={"p2p": ["py.typed"], "topology": ["py.typed"], "optim": ["py.typed"]},
    install_requires=[
        "torch>=2.10",
        "pyzmq>=27",
        "msgpack>=1.1",
        "numpy>=1.26",
        "networkx>=3.2",
        "pynacl>=1.6",
        "safetensors>=0.5",
        "typer>=0.15",
        "rich>=13.7",
        "prometheus-client>=0.20",
        "xxhash>=3.4",
    ],
    extras_require={
        "examples": ["scikit-learn>=1.4"],
        "plot": ["matplotlib>=3.8"],
        "dev": [
            "scikit-learn>=1.4",
            "pytest>=9",
            "pytest-timeout>=2.3",
            "hypothesis>=6.100",
            "mypy>=1.15",
            "ruff>=0.9",
            "types-networkx",
        ],
    },
    entry_points={"console_scripts": ["starlings = p2p.cli:main"]},
)
