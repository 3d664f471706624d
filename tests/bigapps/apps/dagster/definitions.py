import dagster


@dagster.asset
def numbers() -> list[int]:
    return list(range(10))


@dagster.asset
def total_of_numbers(numbers: list[int]) -> int:
    return sum(numbers)


defs = dagster.Definitions(assets=[numbers, total_of_numbers])
