"""Points on the sphere: distance, bearing, circles and geohashes."""

from __future__ import annotations

import math
from typing import Any

from queries.kql.functions.declaration import Body, Function

EARTH_RADIUS_M = 6_371_010.0  # the sphere of the S2 library, on which Kusto measures

_LETTERS = "0123456789bcdefghjkmnpqrstuvwxyz"


def _valid(longitude: float, latitude: float) -> bool:
    return -180 <= longitude <= 180 and -90 <= latitude <= 90


def distance(lon1: float, lat1: float, lon2: float, lat2: float) -> float | None:
    """Metres along the great circle."""
    if not _valid(lon1, lat1) or not _valid(lon2, lat2):
        return None
    a1, a2 = math.radians(lat1), math.radians(lat2)
    half = math.sin((a2 - a1) / 2) ** 2 + math.cos(a1) * math.cos(a2) * math.sin(math.radians(lon2 - lon1) / 2) ** 2
    return 2 * EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(half)))


def point_in_circle(lon: float, lat: float, centre_lon: float, centre_lat: float, radius: float) -> bool | None:
    """Is a point within a radius in metres?"""
    made = distance(lon, lat, centre_lon, centre_lat)
    return None if made is None else made <= radius


def azimuth(lon1: float, lat1: float, lon2: float, lat2: float) -> float | None:
    """Radians clockwise from north to the line between two points."""
    if not _valid(lon1, lat1) or not _valid(lon2, lat2):
        return None
    a1, a2, turn = math.radians(lat1), math.radians(lat2), math.radians(lon2 - lon1)
    east = math.sin(turn) * math.cos(a2)
    north = math.cos(a1) * math.sin(a2) - math.sin(a1) * math.cos(a2) * math.cos(turn)
    return math.atan2(east, north) % (2 * math.pi)


def _interleaved(value: float, low: float, high: float, bits: int) -> list[int]:
    out = []
    for _ in range(bits):
        middle = (low + high) / 2
        bit = int(value >= middle)
        out.append(bit)
        low, high = (middle, high) if bit else (low, middle)
    return out


def to_geohash(longitude: float, latitude: float, accuracy: int = 5) -> str | None:
    """The geohash cell of a point, 1 to 18 letters."""
    if not _valid(longitude, latitude) or not 1 <= accuracy <= 18:
        return None
    bits = accuracy * 5
    east, north = _interleaved(longitude, -180, 180, (bits + 1) // 2), _interleaved(latitude, -90, 90, bits // 2)
    flat = [east[i // 2] if i % 2 == 0 else north[i // 2] for i in range(bits)]
    return "".join(_LETTERS[int("".join(map(str, flat[i : i + 5])), 2)] for i in range(0, bits, 5))


def _cell(text: str) -> tuple[float, float, float, float] | None:
    if not 1 <= len(text) <= 18 or any(c not in _LETTERS for c in text.lower()):
        return None
    box = [-180.0, 180.0, -90.0, 90.0]
    flat = [_LETTERS.index(c) >> shift & 1 for c in text.lower() for shift in (4, 3, 2, 1, 0)]
    for place, bit in enumerate(flat):
        low = 0 if place % 2 == 0 else 2
        middle = (box[low] + box[low + 1]) / 2
        box[low if bit else low + 1] = middle
    return box[0], box[1], box[2], box[3]


def geohash_centre(text: str) -> dict[str, Any] | None:
    """The middle of a geohash cell as a GeoJSON point."""
    box = _cell(text)
    return None if box is None else {"type": "Point", "coordinates": [(box[0] + box[1]) / 2, (box[2] + box[3]) / 2]}


def geohash_polygon(text: str) -> dict[str, Any] | None:
    """The edges of a geohash cell as a GeoJSON polygon."""
    box = _cell(text)
    if box is None:
        return None
    west, east, south, north = box
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [ring]}


FUNCTIONS = (
    Function("geo_distance_2points", "The distance of two points in metres.", Body("r r r r", "real", distance)),
    Function(
        "geo_point_in_circle",
        "Whether a point lies within so many metres of another.",
        Body("r r r r r", "bool", point_in_circle),
    ),
    Function(
        "geo_azimuth",
        "The bearing from one point to another, in radians clockwise from north.",
        Body("r r r r", "real", azimuth),
    ),
    Function(
        "geo_point_to_geohash",
        "The geohash cell of a point.",
        Body("r r", "string", to_geohash),
        Body("r r l", "string", to_geohash),
    ),
    Function(
        "geo_geohash_to_central_point",
        "The middle of a geohash cell as a GeoJSON point.",
        Body("s", "dynamic", geohash_centre),
    ),
    Function(
        "geo_geohash_to_polygon",
        "The edges of a geohash cell as a GeoJSON polygon.",
        Body("s", "dynamic", geohash_polygon),
    ),
)
