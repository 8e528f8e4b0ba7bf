"""convert_* and format_bytes: units of one quantity, by their factor to the SI unit.

Factors are exact by definition (international yard and pound 1959, SI) or CODATA 2018. Unit names are those of
UnitsNet, which Kusto documents; a name not listed here gives null, as an unknown name does there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from queries.kql.functions.declaration import Body, Function

_INCH, _POUND, _G = 0.0254, 0.45359237, 9.80665
_PREFIX = {"Nano": 1e-9, "Micro": 1e-6, "Milli": 1e-3, "Centi": 1e-2, "Deci": 1e-1, "": 1.0, "Deca": 10.0,
           "Hecto": 1e2, "Kilo": 1e3, "Mega": 1e6, "Giga": 1e9, "Tera": 1e12}  # fmt: skip


def _prefixed(unit: str, size: float, prefixes: str) -> dict[str, float]:
    return {(p + unit.lower() if p else unit): f * size for p, f in _PREFIX.items() if p in prefixes.split() or not p}


LENGTH = _prefixed("Meter", 1.0, "Nano Micro Milli Centi Deci Hecto Kilo") | {
    "Inch": _INCH, "Foot": 12 * _INCH, "Yard": 36 * _INCH, "Mile": 63360 * _INCH, "NauticalMile": 1852.0, "Mil": _INCH / 1000,
    "Microinch": _INCH / 1e6, "Fathom": 72 * _INCH, "Chain": 792 * _INCH, "Hand": 4 * _INCH,
    "AstronomicalUnit": 1.495978707e11, "LightYear": 9.4607304725808e15, "Parsec": 3.08567758128e16,
}  # fmt: skip
MASS = _prefixed("Gram", 1e-3, "Nano Micro Milli Centi Deci Deca Hecto Kilo") | {
    "Tonne": 1e3, "Kilotonne": 1e6, "Megatonne": 1e9, "Pound": _POUND, "Ounce": _POUND / 16, "Stone": 14 * _POUND,
    "Grain": _POUND / 7000, "ShortTon": 2000 * _POUND, "LongTon": 2240 * _POUND,
    "ShortHundredweight": 100 * _POUND, "LongHundredweight": 112 * _POUND, "Slug": _POUND * _G / 0.3048,
}  # fmt: skip
_PER = {"PerSecond": 1.0, "PerMinute": 60.0, "PerHour": 3600.0}
_SPEED_LENGTHS = ("Nanometer", "Micrometer", "Millimeter", "Centimeter", "Decimeter", "Meter", "Kilometer", "Inch", "Foot",
                  "Yard")  # fmt: skip
SPEED = {unit + per: LENGTH[unit] / size for unit in _SPEED_LENGTHS for per, size in _PER.items()} | {
    "MilePerHour": 0.44704, "Knot": 1852 / 3600, "Mach": 340.29,
}  # fmt: skip
ENERGY = _prefixed("Joule", 1.0, "Milli Kilo Mega Giga Tera") | {
    "WattHour": 3600.0, "KilowattHour": 3.6e6, "MegawattHour": 3.6e9, "GigawattHour": 3.6e12, "TerawattHour": 3.6e15,
    "Calorie": 4.184, "Kilocalorie": 4184.0, "BritishThermalUnit": 1055.05585262, "ElectronVolt": 1.602176634e-19,
    "Erg": 1e-7, "FootPound": 1.3558179483314004,
}  # fmt: skip
FORCE = _prefixed("Newton", 1.0, "Micro Milli Deca Kilo Mega") | {
    "KilogramForce": _G, "TonneForce": 1e3 * _G, "Dyn": 1e-5, "KiloPond": _G, "Poundal": _POUND * 0.3048,
    "PoundForce": _POUND * _G, "OunceForce": _POUND * _G / 16, "KilopoundForce": 1e3 * _POUND * _G,
    "ShortTonForce": 2e3 * _POUND * _G,
}  # fmt: skip
VOLUME = _prefixed("Liter", 1e-3, "Nano Micro Milli Centi Deci Deca Hecto Kilo Mega") | {
    "CubicMeter": 1.0, "CubicCentimeter": 1e-6, "CubicMillimeter": 1e-9, "CubicDecimeter": 1e-3, "CubicKilometer": 1e9,
    "CubicMicrometer": 1e-18, "CubicHectometer": 1e6, "CubicInch": _INCH**3, "CubicFoot": (12 * _INCH) ** 3,
    "CubicYard": (36 * _INCH) ** 3, "CubicMile": (63360 * _INCH) ** 3, "UsGallon": 231 * _INCH**3,
    "UsQuart": 57.75 * _INCH**3, "UsPint": 28.875 * _INCH**3, "UsOunce": 231 * _INCH**3 / 128, "ImperialGallon": 4.54609e-3,
    "ImperialPint": 4.54609e-3 / 8, "ImperialQuart": 4.54609e-3 / 4, "ImperialOunce": 4.54609e-3 / 160,
    "OilBarrel": 42 * 231 * _INCH**3,
}  # fmt: skip
ANGLE = _prefixed("Degree", math.pi / 180, "Nano Micro Milli") | _prefixed("Radian", 1.0, "Nano Micro Milli Centi Deci") | {
    "Arcminute": math.pi / 10800, "Arcsecond": math.pi / 648000, "Gradian": math.pi / 200, "Revolution": 2 * math.pi,
}  # fmt: skip
# Temperatures have their own origin: (kelvins per step, kelvins at zero).
TEMPERATURE = {
    "Kelvin": (1.0, 0.0), "DegreeCelsius": (1.0, 273.15), "DegreeFahrenheit": (5 / 9, 459.67 * 5 / 9),
    "DegreeRankine": (5 / 9, 0.0), "DegreeReaumur": (1.25, 273.15), "MillidegreeCelsius": (1e-3, 273.15),
}  # fmt: skip


def _between(table: dict[str, float]) -> Callable[[float, str, str], float | None]:
    def run(value: float, source: str, target: str) -> float | None:
        if source not in table or target not in table:
            return None
        return value * table[source] / table[target] if source != target else value

    return run


def convert_temperature(value: float, source: str, target: str) -> float | None:
    """A temperature in another scale."""
    if source not in TEMPERATURE or target not in TEMPERATURE:
        return None
    step, zero = TEMPERATURE[source]
    to_step, to_zero = TEMPERATURE[target]
    return (value * step + zero - to_zero) / to_step


_BYTES = ("Bytes", "KB", "MB", "GB", "TB", "PB", "EB")


def format_bytes(size: float, digits: float = 0, unit: str = "") -> str | None:
    """A size in the unit that fits, or in the requested one; trailing zeros are left out."""
    if unit and unit not in _BYTES:
        return None
    step = _BYTES.index(unit) if unit else 0
    while not unit and step < len(_BYTES) - 1 and abs(size) >= 1024 ** (step + 1):
        step += 1
    text = f"{size / 1024**step:.{int(digits)}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {_BYTES[step]}"


FUNCTIONS = (
    *(
        Function(f"convert_{name}", f"{doc} in another unit.", Body("r s s", "real", _between(table)))
        for name, doc, table in (
            ("length", "A length", LENGTH), ("mass", "A mass", MASS), ("speed", "A speed", SPEED),
            ("energy", "An energy", ENERGY), ("force", "A force", FORCE), ("volume", "A volume", VOLUME),
            ("angle", "An angle", ANGLE),
        )
    ),
    Function("convert_temperature", "A temperature in another scale.", Body("r s s", "real", convert_temperature)),
    Function(
        "format_bytes", "A number of bytes in the unit that fits, or in a given one.",
        Body("r", "string", format_bytes), Body("r r", "string", format_bytes), Body("r r s", "string", format_bytes),
    ),
)  # fmt: skip
